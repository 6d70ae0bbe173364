{{ config(materialized='table', unique_key='customer', options={'primaryKey': 'customer'}) }}
select customer, count(*) as orders, sum(amount) as total from {{ ref('recent') }} group by customer
