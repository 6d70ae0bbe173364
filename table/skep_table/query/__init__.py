"""Queries: what a read asks for, the plan of file slices that answers it, and the rows."""

from skep_table.query.options import QueryType
from skep_table.query.plan import ReadTask, plan
from skep_table.query.read import read, read_batches, read_schema
from skep_table.query.request import ReadRequest
from skep_table.query.result import ReadResult

__all__ = ["QueryType", "ReadRequest", "ReadResult", "ReadTask", "plan", "read", "read_batches", "read_schema"]
