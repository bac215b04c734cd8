package tony.tests;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import org.apache.hadoop.conf.Configurable;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.net.StandardSocketFactory;

/**
 * Connects from the DataNode's own address: the NameNode knows a DataNode by the address that its calls come from, and
 * otherwise all DataNodes of this machine would be the same host.
 */
public class OwnAddress extends StandardSocketFactory implements Configurable {
  private Configuration configuration;

  @Override
  public Configuration getConf() {
    return configuration;
  }

  @Override
  public void setConf(Configuration configuration) {
    this.configuration = configuration;
  }

  @Override
  public Socket createSocket() throws IOException {
    Socket socket = super.createSocket();
    socket.bind(new InetSocketAddress(configuration.get("dfs.datanode.hostname"), 0));
    return socket;
  }
}
