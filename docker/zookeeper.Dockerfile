# One ZooKeeper, for locks. Its data is not in Debian's folder, whose `myid` is a text to be replaced.
FROM skep/java
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zookeeper >/dev/null \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /var/lib/service \
 && printf 'tickTime=2000\ndataDir=/var/lib/service\nclientPort=2181\nadmin.enableServer=false\n' >/etc/zookeeper.cfg
VOLUME /var/lib/service
EXPOSE 2181
ENTRYPOINT ["sh", "-c", "exec java -Xmx256m -cp '/usr/share/java/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /etc/zookeeper.cfg"]
