"""Java classes of this package in the driver's JVM: what Spark offers to Java and Scala only.

They are compiled there from their sources in `java/`, by the compiler that Spark itself uses for generated code;
executors do not load them. The one place that depends on classes of Spark that differ between its releases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from skep_format.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_SCAN: Final = "FileScan"
PRUNED_RELATION: Final = "PrunedRelation"
PLANNING_CALLS: Final = "PlanningCalls"
CHANGE_SOURCE: Final = "ChangeSource"

_FILE_INDEX: Final = "org.apache.spark.sql.execution.datasources.InMemoryFileIndex"
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_made: Final[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()


def java_object(spark: SparkSession, name: str) -> Any:
    """An object of the class, compiled once for each Spark application. UnsupportedError where that can't be done."""
    made = _made.setdefault(spark.sparkContext, {})
    if name not in made:
        try:
            made[name] = _compiled(spark, name)
        except Exception as error:  # of whatever kind: there are other ways to read
            made[name] = UnsupportedError(
                f"Spark {spark.version} does not take skep's {name}: {reason_of(error)}", found=spark.version
            )
    if isinstance(made[name], UnsupportedError):
        raise made[name]
    return made[name]


def planning_call(spark: SparkSession, function: Callable[[Sequence[str], Sequence[Any]], Any]) -> Any:
    """A function of columns and filters (objects of Spark's `sources.Filter`) that Java calls while it plans a query.

    UnsupportedError where the session can't call Python.
    """
    made = java_object(spark, PLANNING_CALLS)
    return made.of(python_call(spark, lambda columns, filters: function(list(columns), list(filters))))


def python_call(spark: SparkSession, function: Callable[[Any, Any], Any]) -> Any:
    """A function of two values that Java calls."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(spark.sparkContext._gateway)
    return _Call(function)


class _Call:
    """A function as Java's."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def apply(self, one: Any, other: Any) -> Any:
        return self._function(one, other)

    class Java:
        implements: Final = ["java.util.function.BiFunction"]


def reason_of(error: Exception) -> str:
    """The first line of an error, of Java's where there is one."""
    thrown = getattr(error, "java_exception", None)
    text = str(error if thrown is None else thrown.toString()).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _package_of(context: Any, name: str, *packages: str) -> str:
    """The last of these packages that has the class: newer releases of Spark leave a name behind where one was."""
    utils = context._jvm.org.apache.spark.util.Utils
    return [package for package in packages if utils.classIsLoadable(f"{package}.{name}")][-1]


def _compiled(spark: SparkSession, name: str) -> Any:
    context: Any = spark.sparkContext
    gateway, java = context._gateway, context._jvm.java
    session: Any = spark._jsparkSession
    loader = session.getClass().getClassLoader()
    (constructor,) = java.lang.Class.forName(_FILE_INDEX, True, loader).getConstructors()
    kinds = [kind.getName() for kind in constructor.getParameterTypes()]
    source = (files(__package__) / "java" / f"{name}.java").read_text("utf-8")
    compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    own = session.getClass().getName()  # of Spark 4 a class below the one in signatures
    names = {
        "$SESSION": kinds[0],
        "$SEQ": kinds[1],
        "$OWN_SESSION": own,
        "$DATASET": own.replace("SparkSession", "Dataset"),
        "$STREAMING": _package_of(context, "SerializedOffset", _STREAMING, f"{_STREAMING}.runtime"),
    }
    for mark, kind in names.items():
        source = source.replace(mark, kind)
    compiler.cook(source)
    found = compiler.getClassLoader().loadClass(f"skep.{name}")
    no_types, no_values = gateway.new_array(java.lang.Class, 0), gateway.new_array(java.lang.Object, 0)
    return found.getDeclaredConstructor(no_types).newInstance(no_values)
