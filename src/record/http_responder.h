#pragma once
// Answers GET requests, for a scraper or a browser. Of our own: libmicrohttpd, the library that Debian has for it, ends a
// connection after a time without a byte, so a client that sends one now and then keeps its place; here a connection has a life.
// It also loads ten libraries (TLS), and needs more of a request than a scraper sends.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "io/file.h"

namespace millrace::record {

/// Lasts as long as the handler runs.
struct HttpRequest {
    std::string_view path, query;  ///< before and behind the first "?", as they were sent
    std::string_view headers;      ///< lines behind the request line

    /// Its value without blanks around it; nothing where it is missing. Empty where it was sent twice, so that no caller relies
    /// on one of them.
    [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const;
    /// For handlers that look at the path alone.
    operator std::string_view() const { return path; }  // NOLINT(google-explicit-constructor): on purpose
};

struct HttpReply {
    int status = 200;
    std::string type;  ///< Content-Type
    std::string body;
    std::string headers = {};  ///< further ones, each ended by "\r\n"
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
    /// Called on the responder's thread.
    using Handler = std::function<HttpReply(const HttpRequest& request)>;

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

    HttpResponder(Handler handler, HttpLimits limits) : handler_(std::move(handler)), limits_(limits) {}
    void loop();
    void accept_some(Time now);
    /// False when the connection is to be closed.
    [[nodiscard]] bool serve(Connection& connection) const;
    [[nodiscard]] bool receive(Connection& connection) const;
    [[nodiscard]] std::string reply_to(std::string_view request) const;

    io::FileDescriptor listener_, stop_;
    std::string address_;
    int port_ = 0;
    Handler handler_;
    HttpLimits limits_;
    std::vector<Connection> connections_;  ///< the thread's own
    Time accept_again_{};                  ///< no descriptors left: not before then
    std::thread thread_;
};

}  // namespace millrace::record
