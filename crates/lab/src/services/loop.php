<?php
// A page that costs `us` microseconds of CPU time: it computes until the process has used so much more than when the
// page began. Waiting for a processor is not counted. Then it waits `wait` microseconds without a processor, as for a
// database, and sends events for `stream` microseconds: a line at once and one every half second. It ends with the CPU
// time that it used.
function used(): int
{
    $usage = getrusage();
    return ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']) * 1000000
        + $usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec'];
}

// A parameter in microseconds, at most a minute.
function micros(string $name, ?string $default): int
{
    $text = $_GET[$name] ?? $default ?? '';
    if (!is_string($text) || !preg_match('/^[0-9]{1,8}$/', $text) || $text > 60000000) {
        http_response_code(400);
        exit("$name: a time in microseconds, at most a minute, as in /loop.php?us=8000&wait=20000\n");
    }
    return (int) $text;
}

$before = used();
header('Content-Type: text/plain');
[$us, $wait, $stream] = [micros('us', null), micros('wait', '0'), micros('stream', '0')];
set_time_limit(0);
for ($x = 1; used() - $before < $us;) {
    // Some microseconds, so that the loop is mostly this and not the question how late it is.
    for ($i = 0; $i < 300; $i++) {
        $x = ($x * 1103515245 + 12345) & 0x7fffffff;
    }
}
usleep($wait);
// Sleeps end late, so that all are counted from the first.
$now = fn(): int => intdiv(hrtime(true), 1000);
for ($start = $now(), $events = 1; ($left = $start + $stream - $now()) > 0; $events++) {
    echo "event\n";
    flush();
    usleep(max(0, min($left, $start + $events * 500000 - $now())));
}
echo used() - $before, "\n";
