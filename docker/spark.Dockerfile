# Spark's Thrift Server with Hudi's bundle.
FROM skep/python AS build
COPY . /tmp/spark
RUN /opt/venv/bin/pip install -q --no-index --find-links /tmp/spark/wheels pyspark

FROM skep/python
COPY --from=build /opt/venv /opt/venv
COPY hudi.jar spark_thrift.py /opt/spark/
ENV METASTORE=thrift://metastore:9083 PORT=10000 HOST=0.0.0.0
EXPOSE 10000
ENTRYPOINT ["sh", "-c", "exec python3 /opt/spark/spark_thrift.py $PORT $METASTORE /opt/spark/hudi.jar /tmp $HOST"]
