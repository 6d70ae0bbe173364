"""A table's settings: `hoodie.properties` read, written and changed, typed and checked (format guide 1.3)."""

from skep_format.table_config.config import TableConfig as TableConfig
from skep_format.table_config.config import table_checksum as table_checksum
from skep_format.table_config.config import with_checksum as with_checksum
from skep_format.table_config.file import create_table_config as create_table_config
from skep_format.table_config.file import load_table_config as load_table_config
from skep_format.table_config.file import update_table_config as update_table_config
from skep_format.table_config.keys import ARCHIVE_FOLDER as ARCHIVE_FOLDER
from skep_format.table_config.keys import CHECKSUM as CHECKSUM
from skep_format.table_config.keys import DROP_PARTITION_COLUMNS as DROP_PARTITION_COLUMNS
from skep_format.table_config.keys import HISTORY_PATH as HISTORY_PATH
from skep_format.table_config.keys import KEY_GENERATOR_CLASS as KEY_GENERATOR_CLASS
from skep_format.table_config.keys import MERGE_PROPERTY_PREFIX as MERGE_PROPERTY_PREFIX
from skep_format.table_config.keys import METADATA_PARTITIONS as METADATA_PARTITIONS
from skep_format.table_config.keys import METADATA_PARTITIONS_INFLIGHT as METADATA_PARTITIONS_INFLIGHT
from skep_format.table_config.keys import POPULATE_META_FIELDS as POPULATE_META_FIELDS
from skep_format.table_config.keys import PROPERTIES_PATH as PROPERTIES_PATH
from skep_format.table_config.keys import STRATEGY_OF_MODE as STRATEGY_OF_MODE
from skep_format.table_config.keys import TIMELINE_PATH as TIMELINE_PATH
from skep_format.table_config.keys import TIMESTAMP_KEY_GENERATOR as TIMESTAMP_KEY_GENERATOR
from skep_format.table_config.keys import USER_PROVIDED as USER_PROVIDED
from skep_format.table_config.keys import MergeMode as MergeMode
from skep_format.table_config.keys import PartialUpdateMode as PartialUpdateMode
from skep_format.table_config.keys import TableType as TableType
from skep_format.table_config.keys import TimelineZone as TimelineZone
from skep_format.table_config.keys import mode_of_payload as mode_of_payload
