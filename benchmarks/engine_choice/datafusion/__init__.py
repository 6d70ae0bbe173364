"""A translator of Spark's SQL for DataFusion, whose functions were compared with Spark over values of all kinds."""
