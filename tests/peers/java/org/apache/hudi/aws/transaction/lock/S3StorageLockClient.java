package org.apache.hudi.aws.transaction.lock;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;

/**
 * What Hudi's bundle for AWS brings under this name: the conditional requests of StorageBasedLockProvider, here as plain
 * HTTP to a server on loopback that checks no signature. The provider and the content of the file are Hudi's own.
 */
public final class S3StorageLockClient implements StorageLockClient {
  private final HttpClient client = HttpClient.newHttpClient();
  private final URI file;

  public S3StorageLockClient(String owner, String lockFile, Properties properties) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(lockFile);
    String server = properties.getProperty("hoodie.test.s3.endpoint");
    file = URI.create(server + "/" + place.getLeft() + "/" + place.getRight());
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    HttpResponse<byte[]> found = send(HttpRequest.newBuilder(file).GET());
    if (found.statusCode() == 404) {
      return Pair.of(LockGetResult.NOT_EXISTS, Option.empty());
    }
    if (found.statusCode() != 200) {
      return Pair.of(LockGetResult.UNKNOWN_ERROR, Option.empty());
    }
    ByteArrayInputStream content = new ByteArrayInputStream(found.body());
    return Pair.of(LockGetResult.SUCCESS, Option.of(StorageLockFile.createFromStream(content, etag(found))));
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(
      StorageLockData data, Option<StorageLockFile> before) {
    HttpRequest.Builder put =
        HttpRequest.newBuilder(file).PUT(HttpRequest.BodyPublishers.ofByteArray(StorageLockFile.toByteArray(data)));
    if (before.isPresent()) {
      put.header("If-Match", before.get().getVersionId());
    } else {
      put.header("If-None-Match", "*");
    }
    HttpResponse<byte[]> done = send(put);
    if (done.statusCode() == 200) {
      return Pair.of(LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(data, etag(done))));
    }
    boolean lost = done.statusCode() == 412;
    return Pair.of(lost ? LockUpsertResult.ACQUIRED_BY_OTHERS : LockUpsertResult.UNKNOWN_ERROR, Option.empty());
  }

  public Option<String> readObject(String path, boolean checkFirst) {
    return Option.empty();
  }

  public boolean writeObject(String path, String content) {
    return false;
  }

  @Override
  public void close() {}

  private HttpResponse<byte[]> send(HttpRequest.Builder request) {
    try {
      request.header("Authorization", "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request");
      return client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
    } catch (IOException | InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  private static String etag(HttpResponse<byte[]> response) {
    return response.headers().firstValue("ETag").orElseThrow();
  }
}
