"""Queries: what a read asks for, the plan of file slices that answers it, and the rows."""

from skep_table.query.options import QueryType as QueryType
from skep_table.query.plan import ReadTask as ReadTask
from skep_table.query.plan import plan as plan
from skep_table.query.read import read as read
from skep_table.query.read import read_batches as read_batches
from skep_table.query.read import read_schema as read_schema
from skep_table.query.request import ReadRequest as ReadRequest
from skep_table.query.result import ReadResult as ReadResult
