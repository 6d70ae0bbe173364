# A small S3 server for trying out tables on object storage; it keeps its data in memory.
FROM skep/java
COPY . /tmp/s3
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/s3 \
 && /opt/s3/bin/pip install -q --no-index --find-links /tmp/s3/wheels 'moto[server,s3]' \
 && rm -rf /tmp/s3
EXPOSE 9000
ENTRYPOINT ["/opt/s3/bin/moto_server", "-H", "0.0.0.0", "-p", "9000"]
