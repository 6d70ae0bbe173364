# A small S3 server for trying out tables on object storage; it keeps its data in memory.
FROM skep/python AS build
COPY . /tmp/s3
RUN /opt/venv/bin/pip install -q --no-index --find-links /tmp/s3/wheels 'moto[server,s3]'

FROM skep/python
COPY --from=build /opt/venv /opt/venv
EXPOSE 9000
ENTRYPOINT ["sh", "-c", "exec moto_server -H ${HOST:-0.0.0.0} -p ${PORT:-9000}"]
