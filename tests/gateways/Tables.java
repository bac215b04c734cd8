import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStoreClient;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.security.UserGroupInformation;

/** Lists the tables of a database with Hive's own client and the token in HADOOP_TOKEN_FILE_LOCATION. */
public class Tables {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = MetastoreConf.newMetastoreConf();
        settings.set("metastore.thrift.uris", arguments[0]);
        settings.set("metastore.sasl.enabled", "true");
        settings.set("metastore.kerberos.principal", arguments[1]);
        UserGroupInformation.setConfiguration(settings);
        HiveMetaStoreClient client = new HiveMetaStoreClient(settings);
        try {
            System.out.println("tables " + new TreeSet<>(client.getAllTables(arguments[2])));
        } finally {
            client.close();
        }
    }
}
