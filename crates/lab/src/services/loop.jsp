<%@page contentType="text/plain" session="false" import="java.lang.management.ManagementFactory, java.lang.management.ThreadMXBean" %><%
// A page that costs `us` microseconds of CPU time and nothing else: it computes until its thread has used so
// much more than when the page began. Waiting for a processor is not counted. It answers with what it used.
ThreadMXBean threads = ManagementFactory.getThreadMXBean();
long before = threads.getCurrentThreadCpuTime();
String us = request.getParameter("us");
if (us == null || !us.matches("[0-9]{1,8}") || Long.parseLong(us) > 60_000_000) {
    response.sendError(400, "us: CPU time in microseconds, at most a minute, as in /loop?us=8000");
    return;
}
long end = before + Long.parseLong(us) * 1000;
int x = 1;
while (threads.getCurrentThreadCpuTime() < end) {
    // Some microseconds, so that the loop is mostly this and not the question how late it is.
    for (int i = 0; i < 2000; i++) {
        x = x * 1103515245 + 12345;
    }
}
// What depends on the result cannot be left out by a compiler.
long used = (threads.getCurrentThreadCpuTime() - before) / 1000 + (x == 0 ? 1 : 0);
%><%= used %>
