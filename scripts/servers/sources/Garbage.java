import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.concurrent.Executors;

/** Garbage PORT: answers over HTTP, and keeps enough of what it allocates for the collector to have something to copy. */
public final class Garbage {
    private static final int ALLOCATED = 200, NODE_BYTES = 1024, KEPT = 100_000;
    private static final ArrayDeque<byte[]> kept = new ArrayDeque<>();

    public static void main(String[] args) throws Exception {
        byte[] answer = "hello".getBytes();
        var address = new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(args[0]));
        HttpServer server = HttpServer.create(address, 1024);
        server.createContext("/", exchange -> {
            work();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }

    /** Replaces some of what is kept. */
    private static synchronized void work() {
        for (int i = 0; i < ALLOCATED; i++) {
            kept.addLast(new byte[NODE_BYTES]);
            if (kept.size() > KEPT) {
                kept.removeFirst();
            }
        }
    }
}
