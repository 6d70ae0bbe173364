# One ZooKeeper, for locks. Its data is not in Debian's folder, whose `myid` is a text to be replaced.
FROM skep/java
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zookeeper >/dev/null \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /var/lib/service
VOLUME /var/lib/service
EXPOSE 2181
ENTRYPOINT ["sh", "-euc", "\
  printf '%s\\n' tickTime=2000 dataDir=/var/lib/service admin.enableServer=false \
    clientPort=${PORT:-2181} clientPortAddress=${HOST:-0.0.0.0} >/tmp/zookeeper.cfg; \
  exec java -Xmx256m -cp '/usr/share/java/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zookeeper.cfg"]
