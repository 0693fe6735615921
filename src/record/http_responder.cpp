#include "record/http_responder.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "sense/proc_file.h"

namespace millrace::record {
namespace {

constexpr int kBacklog = 16;
constexpr std::chrono::milliseconds kOutOfDescriptors{100};

std::string_view reason_of(int status) {
    switch (status) {
        case 200: return "OK";
        case 303: return "See Other";
        case 400: return "Bad Request";
        case 403: return "Forbidden";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 431: return "Request Header Fields Too Large";
        default: return "Error";
    }
}

std::string reply_text(const HttpReply& reply, bool with_body = true) {
    return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}Connection: close\r\n\r\n{}",
                       reply.status, reason_of(reply.status), reply.type, reply.body.size(), reply.headers,
                       reply.status == 405 ? "Allow: GET, HEAD\r\n" : "", with_body ? reply.body : "");
}

std::string refusal(int status, std::string_view why) {
    return reply_text({status, "text/plain; charset=utf-8", fmt::format("{}\n", why)});
}

bool is_complete(std::string_view request) {
    return request.find("\r\n\r\n") != std::string_view::npos || request.find("\n\n") != std::string_view::npos;
}

std::string shown(const std::string& address, int port) {
    return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port) : fmt::format("[{}]:{}", address, port);
}

int port_of(int socket) {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
    return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

base::Result<io::FileDescriptor> listen_on(const std::string& address, int port) {
    const std::string place = shown(address, port);
    if (port < 0 || port > 65535) return base::Error{fmt::format("{} is no port: 0 to 65535", port), place};
    addrinfo wanted{};
    wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* first = nullptr;
    if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &first) != 0)
        return base::Error{
            fmt::format("'{}' is no numeric address; 127.0.0.1 is this machine alone, 0.0.0.0 all networks", address)};
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(first, &::freeaddrinfo);
    io::FileDescriptor listener(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.valid()) return base::Error{fmt::format("cannot open a socket: {}", std::strerror(errno)), place};
    const int yes = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(listener.get(), kBacklog) != 0) {
        if (errno == EADDRINUSE)
            return base::Error{"another program listens on this port; choose another one, or 0 for any that is free", place};
        return base::Error{fmt::format("cannot listen: {}", std::strerror(errno)), place};
    }
    return listener;
}

}  // namespace

base::Result<std::unique_ptr<HttpResponder>> HttpResponder::start(const std::string& address, int port, Handler handler,
                                                                  HttpLimits limits) {
    const std::string numeric = address == "localhost" ? "127.0.0.1" : address;
    std::unique_ptr<HttpResponder> responder(new HttpResponder(std::move(handler), limits));
    MILLRACE_SET(responder->listener_, listen_on(numeric, port));
    responder->stop_ = io::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!responder->stop_.valid()) return base::Error{fmt::format("cannot create an event descriptor: {}", std::strerror(errno))};
    responder->port_ = port_of(responder->listener_.get());
    responder->address_ = shown(numeric, responder->port_);
    responder->thread_ = std::thread([self = responder.get()] { self->loop(); });
    return responder;
}

HttpResponder::~HttpResponder() {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
}

void HttpResponder::loop() {
    std::vector<pollfd> polled;
    for (;;) {
        Time now = std::chrono::steady_clock::now();
        const bool room = connections_.size() < limits_.connections && now >= accept_again_;
        // poll(2) passes over negative descriptors.
        polled.assign({{stop_.get(), POLLIN, 0}, {room ? listener_.get() : -1, POLLIN, 0}});
        Time wake = now + std::chrono::hours{1};
        if (now < accept_again_) wake = accept_again_;
        for (const Connection& connection : connections_) {
            polled.push_back({connection.socket.get(),
                              static_cast<short>(connection.reply.empty() || connection.closing ? POLLIN : POLLOUT), 0});
            wake = std::min(wake, connection.deadline);
        }
        const auto wait = std::chrono::ceil<std::chrono::milliseconds>(wake - now).count();
        if (::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(wait, 0))) < 0 && errno != EINTR) return;
        if (polled[0].revents != 0) return;
        now = std::chrono::steady_clock::now();
        std::vector<Connection> staying;
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            const bool ready = polled[i + 2].revents != 0;
            if (now < connections_[i].deadline && (!ready || serve(connections_[i])))
                staying.push_back(std::move(connections_[i]));
        }
        connections_ = std::move(staying);
        if (polled[1].revents != 0) accept_some(now);
    }
}

void HttpResponder::accept_some(Time now) {
    while (connections_.size() < limits_.connections) {
        io::FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                accept_again_ = now + kOutOfDescriptors;
            return;
        }
        connections_.push_back({std::move(socket), now + limits_.life, {}, {}, 0, false});
    }
}

bool HttpResponder::serve(Connection& connection) const {
    if (connection.reply.empty() || connection.closing) {
        if (!receive(connection)) return false;
        if (connection.closing) return true;
        if (connection.request.size() > limits_.request_bytes)
            connection.reply = refusal(431, "the request is too long");
        else if (is_complete(connection.request))
            connection.reply = reply_to(connection.request);
        else
            return true;
    }
    while (connection.sent < connection.reply.size()) {
        const ssize_t put = ::send(connection.socket.get(), connection.reply.data() + connection.sent,
                                   connection.reply.size() - connection.sent, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        connection.sent += static_cast<std::size_t>(put);
    }
    // Closing at once while bytes of the other side are unread would throw away what it has not read yet.
    connection.closing = true;
    return ::shutdown(connection.socket.get(), SHUT_WR) == 0;
}

bool HttpResponder::receive(Connection& connection) const {
    char bytes[4096];
    for (;;) {
        const ssize_t got = ::recv(connection.socket.get(), bytes, sizeof bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        // Some clients say that they will send no more before they read.
        if (got == 0) return connection.reply.empty() && is_complete(connection.request);
        if (connection.closing) return true;
        connection.request.append(bytes, static_cast<std::size_t>(got));
        if (connection.request.size() > limits_.request_bytes) return true;
    }
}

std::string HttpResponder::reply_to(std::string_view request) const {
    std::string_view line = request.substr(0, request.find_first_of("\r\n"));
    const std::size_t first = line.find(' '), second = line.rfind(' ');
    if (first == std::string_view::npos || second <= first + 1 || !line.substr(second + 1).starts_with("HTTP/1."))
        return refusal(400, "this is no HTTP/1.1 request");
    const std::string_view method = line.substr(0, first);
    std::string_view path = line.substr(first + 1, second - first - 1);
    const std::size_t question = path.find('?');
    const std::string_view query = question == std::string_view::npos ? "" : path.substr(question + 1);
    path = path.substr(0, question);
    if (!path.starts_with('/') || path.find(' ') != std::string_view::npos) return refusal(400, "the path is malformed");
    if (method != "GET" && method != "HEAD") return refusal(405, "only GET and HEAD are answered");
    return reply_text(handler_({path, query, request.substr(line.size())}), method == "GET");
}

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
    std::optional<std::string_view> found;
    std::string_view rest = headers, line;
    while (sense::next_line(rest, line)) {
        if (line.size() <= name.size() || line[name.size()] != ':') continue;
        const bool is_it = std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
            return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
        });
        if (!is_it) continue;
        std::string_view value = line.substr(name.size() + 1);
        while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
        while (!value.empty() && (value.back() == ' ' || value.back() == '\t' || value.back() == '\r')) value.remove_suffix(1);
        found = found ? std::string_view() : value;
    }
    return found;
}

}  // namespace millrace::record
