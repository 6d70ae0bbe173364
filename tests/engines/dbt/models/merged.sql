{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', options={'primaryKey': 'id'},
          on_schema_change='append_new_columns') }}
select id, amount{% if var('wide', false) %}, customer{% endif %} from {{ ref('recent') }}
{% if is_incremental() %} where id >= 2 {% endif %}
