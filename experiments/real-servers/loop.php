<?php
// A page that costs CPU time and nothing else: `n` rounds of a loop that the interpreter cannot skip. It
// answers with the microseconds that they took of the processor, waiting for it not included.
function used(): int
{
    $usage = getrusage();
    return ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']) * 1000000
        + $usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec'];
}

$n = min(max((int) ($_GET['n'] ?? 0), 0), 100000000);
$before = used();
for ($x = 1, $i = 0; $i < $n; $i++) {
    $x = ($x * 1103515245 + 12345) & 0x7fffffff;
}
header('Content-Type: text/plain');
echo used() - $before, "\n";
