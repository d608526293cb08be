"""A small application: four workers, and each request holds one of them for 20 ms.

So it serves 200 requests a second. More requests wait in it, in the order of their arrival.
Usage: python3 app.py [PORT]
"""

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.020)  # a query to a database, for example
        body = b"hello from the application\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Application(HTTPServer):
    request_queue_size = 1024
    workers = ThreadPoolExecutor(4)

    def process_request(self, request, client_address):
        self.workers.submit(self.serve, request, client_address)

    def serve(self, request, client_address):
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client has left
        self.shutdown_request(request)


signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, with all that waits
Application(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9001), Page).serve_forever()
