{% snapshot history %}
{{ config(unique_key='id', strategy='check', check_cols=['amount'], tblproperties={'primaryKey': 'dbt_scd_id'}) }}
select id, amount from {{ ref('orders') }}
{% endsnapshot %}
