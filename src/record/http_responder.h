#pragma once
// Answers GET requests with short texts, for a scraper or a browser on the same machine. Of our own because the program must run
// where nothing but the toolchain's libraries is installed, and because all it needs is one request line: anything more an HTTP
// library brings would be surface towards the network.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "io/file.h"

namespace millrace::record {

struct HttpReply {
    int status = 200;
    std::string type;  ///< Content-Type
    std::string body;
};

struct HttpLimits {
    std::size_t connections = 16;          ///< more wait in the system's queue
    std::size_t request_bytes = 8192;      ///< request line and headers
    std::chrono::milliseconds life{5000};  ///< of a connection; a slower one is closed
};

/// One thread, one request per connection, no state between them. Methods other than GET and HEAD get 405, malformed requests
/// 400, long ones 431.
class HttpResponder {
public:
    /// Called on the responder's thread with the path, without query.
    using Handler = std::function<HttpReply(std::string_view path)>;

    /// `address` is a numeric IPv4 or IPv6 address or "localhost". Port 0 takes a free one.
    static base::Result<std::unique_ptr<HttpResponder>> start(const std::string& address, int port, Handler handler,
                                                              HttpLimits limits = {});
    ~HttpResponder();

    [[nodiscard]] const std::string& address() const { return address_; }  ///< "127.0.0.1:9100", "[::1]:9100"
    [[nodiscard]] int port() const { return port_; }

private:
    using Time = std::chrono::steady_clock::time_point;

    struct Connection {
        io::FileDescriptor socket;
        Time deadline;
        std::string request, reply;
        std::size_t sent = 0;
        bool closing = false;  ///< all is sent; waiting for the other side to hang up, so that it gets to read it
    };

    HttpResponder(io::FileDescriptor listener, io::FileDescriptor stop, std::string address, int port, Handler handler,
                  HttpLimits limits);
    void loop();
    void accept_some(Time now);
    /// False when the connection is to be closed.
    [[nodiscard]] bool serve(Connection& connection) const;
    [[nodiscard]] bool receive(Connection& connection) const;
    [[nodiscard]] std::string reply_to(std::string_view request) const;

    io::FileDescriptor listener_, stop_;
    std::string address_;
    int port_;
    Handler handler_;
    HttpLimits limits_;
    std::vector<Connection> connections_;  ///< the thread's own
    Time accept_again_{};                  ///< no descriptors left: not before then
    std::thread thread_;
};

}  // namespace millrace::record
