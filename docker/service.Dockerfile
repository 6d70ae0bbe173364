# One of the services of services.py; images.py lays out what is copied.
FROM skep/java:17
COPY . /opt/service
VOLUME /var/lib/service
ENTRYPOINT ["/opt/service/run"]
