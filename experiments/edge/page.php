<?php
// A request waits for its service time in a worker, as one that asks a database does. The long one sends an event
// every tenth of a second.
if ($_SERVER['HTTP_HOST'] === 'long.test') {
    header('X-Accel-Buffering: no');
    while (!connection_aborted()) {
        echo "event\n";
        flush();
        usleep(100000);
    }
    exit;
}
usleep(40000);
echo "page\n";
