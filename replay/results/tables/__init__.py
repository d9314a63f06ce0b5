"""A run as Parquet tables: what they hold, how they are made from the run's files, how to ask."""
