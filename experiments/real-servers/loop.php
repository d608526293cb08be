<?php
// A page that costs CPU time and nothing else: `n` rounds of a loop that the interpreter cannot skip.
$n = min(max((int) ($_GET['n'] ?? 0), 0), 100000000);
for ($x = 1, $i = 0; $i < $n; $i++) {
    $x = ($x * 1103515245 + 12345) & 0x7fffffff;
}
header('Content-Type: text/plain');
echo $x, "\n";
