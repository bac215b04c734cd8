package tony.tests;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * A node's disk, as it is with Hadoop's native library: permissions are set by a call. The library is not on Maven
 * Central, and without it Hadoop starts a chmod for each file that it unpacks: some 550 for the runtime.
 */
public class NodeDisk extends ChecksumFs {
  NodeDisk(URI uri, Configuration configuration) throws IOException, URISyntaxException {
    super(new Raw(uri, configuration));
  }

  /** What RawLocalFs is, over the files below. */
  private static class Raw extends DelegateToFileSystem {
    Raw(URI uri, Configuration configuration) throws IOException, URISyntaxException {
      super(uri, new LocalFiles(), configuration, "file", false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1;
    }

    @Override
    public boolean isValidName(String name) {
      return true;
    }
  }

  private static class LocalFiles extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      Files.setAttribute(pathToFile(path).toPath(), "unix:mode", (int) permission.toShort());
    }
  }
}
