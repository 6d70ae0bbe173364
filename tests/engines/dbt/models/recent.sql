{{ config(materialized='view') }}
select id, customer, amount, cast(day as date) as day from {{ ref('orders') }}
