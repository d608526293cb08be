<?php
// A page that costs `us` microseconds of CPU time and nothing else: it computes until the process has used so
// much more than when the page began. Waiting for a processor is not counted. It answers with what it used.
function used(): int
{
    $usage = getrusage();
    return ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']) * 1000000
        + $usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec'];
}

$before = used();
header('Content-Type: text/plain');
$us = $_GET['us'] ?? '';
if (!preg_match('/^[0-9]{1,8}$/', $us) || $us > 60000000) {
    http_response_code(400);
    exit("us: CPU time in microseconds, at most a minute, as in /loop.php?us=8000\n");
}
set_time_limit(0);
for ($x = 1; used() - $before < $us;) {
    // Some microseconds, so that the loop is mostly this and not the question how late it is.
    for ($i = 0; $i < 300; $i++) {
        $x = ($x * 1103515245 + 12345) & 0x7fffffff;
    }
}
echo used() - $before, "\n";
