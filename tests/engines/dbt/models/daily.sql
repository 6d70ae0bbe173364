{{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by='day', unique_key='id',
          options={'primaryKey': 'id'}) }}
select id, amount, day from {{ ref('recent') }}
