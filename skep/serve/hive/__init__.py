"""SQL over the protocol of HiveServer2: JDBC, beeline, PyHive and DBeaver as clients of a lake."""
