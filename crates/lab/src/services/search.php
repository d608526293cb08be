<?php
// Runs Omega, a CGI program, for one search and waits for it: its CPU time is counted as that of this process's
// children. The request's query is Omega's: P the words, DB the index, FMT the template of the reply.
$environment = [
    'OMEGA_CONFIG_FILE' => dirname(__DIR__) . '/omega.conf',
    'QUERY_STRING' => $_SERVER['QUERY_STRING'],
    'REQUEST_METHOD' => 'GET',
    'SCRIPT_NAME' => '/search.php',
];
$streams = [['file', '/dev/null', 'r'], ['pipe', 'w'], ['file', '/dev/null', 'w']];
$omega = proc_open(['/usr/lib/cgi-bin/omega/omega'], $streams, $pipes, null, $environment);
if ($omega === false) {
    throw new Exception('Omega cannot be started');
}
$reply = explode("\n\n", stream_get_contents($pipes[1]), 2);
fclose($pipes[1]);
$status = proc_close($omega);
if ($status !== 0 || count($reply) !== 2) {
    throw new Exception("Omega has ended with status $status");
}
header('Content-Type: text/html; charset=utf-8');
echo $reply[1];
