# One of the services of engine_services.py; engine_images.py lays out what is copied.
FROM skep/java
COPY . /opt/service
VOLUME /var/lib/service
ENTRYPOINT ["/opt/service/run"]
