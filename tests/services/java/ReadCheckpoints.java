import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.samza.checkpoint.Checkpoint;
import org.apache.samza.checkpoint.CheckpointManager;
import org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory;
import org.apache.samza.config.MapConfig;
import org.apache.samza.container.TaskName;
import org.apache.samza.metrics.MetricsRegistryMap;

/** Reads the last checkpoints of a job as a job of Samza does: servers, job, read versions, task... */
public class ReadCheckpoints {
  public static void main(String[] args) {
    Map<String, String> config = new HashMap<>();
    config.put("job.name", args[1]);
    config.put("job.id", "1");
    config.put("task.checkpoint.factory", "org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory");
    config.put("task.checkpoint.system", "kafka");
    config.put("task.checkpoint.replication.factor", "1");
    config.put("task.checkpoint.read.versions", args[2]);
    config.put("systems.kafka.samza.factory", "org.apache.samza.system.kafka.KafkaSystemFactory");
    config.put("systems.kafka.consumer.bootstrap.servers", args[0]);
    config.put("systems.kafka.producer.bootstrap.servers", args[0]);
    config.put("systems.kafka.consumer.zookeeper.connect", "nowhere:1");
    CheckpointManager manager =
        new KafkaCheckpointManagerFactory().getCheckpointManager(new MapConfig(config), new MetricsRegistryMap());
    manager.createResources();
    for (int i = 3; i < args.length; i++) manager.register(new TaskName(args[i]));
    manager.start();
    for (int i = 3; i < args.length; i++) {
      Checkpoint found = manager.readLastCheckpoint(new TaskName(args[i]));
      Map<String, String> offsets = new TreeMap<>();
      if (found != null) found.getOffsets().forEach((ssp, offset) -> offsets.put(ssp.toString(), offset));
      System.out.println("READ\t" + args[i] + "\t" + (found == null ? "none" : found.getVersion()) + "\t" + offsets);
    }
    manager.stop();
    System.exit(0);
  }
}
