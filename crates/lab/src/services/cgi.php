<?php
// Runs a CGI program for one request and waits for it: its CPU time is counted as that of this process's children.
$environment = [
    '%VARIABLE%' => '%CONFIGURATION%',
    'QUERY_STRING' => $_SERVER['QUERY_STRING'],
    'REQUEST_METHOD' => 'GET',
    'SCRIPT_NAME' => $_SERVER['SCRIPT_NAME'],
    'HTTP_HOST' => $_SERVER['HTTP_HOST'],
    'SERVER_NAME' => 'localhost',
    'SERVER_PORT' => '80',
];
$streams = [['file', '/dev/null', 'r'], ['pipe', 'w'], ['file', '/dev/null', 'w']];
$program = proc_open(['%PROGRAM%'], $streams, $pipes, null, $environment);
if ($program === false) {
    throw new Exception('%PROGRAM% cannot be started');
}
$reply = explode("\n\n", stream_get_contents($pipes[1]), 2);
fclose($pipes[1]);
$status = proc_close($program);
if ($status !== 0 || count($reply) !== 2) {
    throw new Exception("%PROGRAM% has ended with status $status");
}
foreach (explode("\n", $reply[0]) as $field) {
    // The status is a field of CGI, and not of HTTP.
    if (preg_match('/^Status: ([0-9]+)/', $field, $status)) {
        http_response_code((int) $status[1]);
    } else {
        header($field);
    }
}
echo $reply[1];
