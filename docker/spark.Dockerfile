# Spark's Thrift Server with Hudi's bundle.
FROM skep/java
COPY . /opt/spark
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install -q --no-index --find-links /opt/spark/wheels pyspark \
 && rm -rf /opt/spark/wheels
ENV PATH=/opt/venv/bin:$PATH METASTORE=thrift://metastore:9083 PORT=10000 HOST=0.0.0.0
EXPOSE 10000
ENTRYPOINT ["sh", "-c", "exec python3 /opt/spark/spark_thrift.py $PORT $METASTORE /opt/spark/hudi.jar /tmp $HOST"]
