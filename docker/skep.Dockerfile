# skep without Spark: sync, serve, read, locks.
FROM skep/java
COPY . /tmp/skep
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/skep \
 && /opt/skep/bin/pip install -q --no-index --find-links /tmp/skep/wheels 'skep[hive,presto,trino,serve,s3]' \
 && rm -rf /tmp/skep
ENV PATH=/opt/skep/bin:$PATH
ENTRYPOINT ["skep"]
CMD ["--help"]
