# PostgreSQL with the metastore's empty database. For trying things out: whoever reaches it may write.
FROM skep/java
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15/main
USER postgres
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql
EXPOSE 5432
ENTRYPOINT ["sh", "-euc", "\
  if [ ! -e $PGDATA/PG_VERSION ]; then \
    initdb -A trust -U hive >/dev/null; \
    echo 'host all all all trust' >>$PGDATA/pg_hba.conf; \
    echo 'create database metastore;' | postgres --single -j postgres >/dev/null; \
  fi; \
  exec postgres -c listen_addresses=${HOST:-*} -p ${PORT:-5432}"]
