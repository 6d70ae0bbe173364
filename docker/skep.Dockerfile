# skep without Spark: sync, serve, read, locks.
FROM skep/python AS build
COPY . /tmp/skep
RUN /opt/venv/bin/pip install -q --no-index --find-links /tmp/skep/wheels 'skep-hudi[hive,presto,trino,serve,s3]'

FROM skep/python
COPY --from=build /opt/venv /opt/venv
ENTRYPOINT ["skep"]
CMD ["--help"]
