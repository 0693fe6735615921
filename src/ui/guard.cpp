#include "ui/guard.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <charconv>

#include "base/split.h"
#include "base/units.h"

namespace millrace::ui {
namespace {

constexpr const char* kPlain = "text/plain; charset=utf-8";

/// In a time that does not depend on where they differ.
bool are_equal(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned different = 0;
    for (std::size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
    return different == 0;
}

record::HttpReply refuse(const std::string& why) { return {403, kPlain, why + "\n"}; }

}  // namespace

base::Result<std::string> new_token() {
    std::array<unsigned char, 16> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        return base::Error{"the system gives no random numbers", {}, 1};
    std::string token;
    for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
    return token;
}

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        const std::string_view digits = text.substr(i + 1, 2);
        unsigned char byte = 0;
        const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
        if (code != std::errc{} || end != text.data() + i + 3 || byte == 0) return std::nullopt;
        out += static_cast<char>(byte);
        i += 2;
    }
    return out;
}

std::optional<std::string> query_value(std::string_view query, std::string_view key) {
    for (const std::string& part : base::split(query, '&'))
        if (part.size() > key.size() && part.starts_with(key) && part[key.size()] == '=')
            return percent_decoded(std::string_view(part).substr(key.size() + 1));
    return std::nullopt;
}

bool Guard::knows_host(std::string_view host) const {
    const std::size_t port = host.rfind(':');
    if (port == std::string_view::npos || port + 1 == host.size() ||
        host.find_first_not_of("0123456789", port + 1) != std::string_view::npos)
        return false;
    std::string name(host.substr(0, port));
    if (name == "localhost" || name == "127.0.0.1" || name == "[::1]") return true;
    if (token_.empty()) return false;
    if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
    in6_addr any{};
    return ::inet_pton(AF_INET, name.c_str(), &any) == 1 || ::inet_pton(AF_INET6, name.c_str(), &any) == 1;
}

bool Guard::has_cookie(const record::HttpRequest& request, const std::string& name) const {
    for (const std::string& part : base::split(request.header("Cookie").value_or(""), ';')) {
        const std::string_view cookie = base::trimmed(part);
        if (cookie.starts_with(name + "=") && are_equal(cookie.substr(name.size() + 1), token_)) return true;
    }
    return false;
}

std::optional<record::HttpReply> Guard::refusal(const record::HttpRequest& request) const {
    const std::string_view host = request.header("Host").value_or("");
    if (!knows_host(host)) return refuse("this address is not known here: ask by number, such as http://127.0.0.1");
    const auto origin = request.header("Origin");
    if (origin && *origin != fmt::format("http://{}", host)) return refuse("a page of another origin may not ask");
    if (token_.empty()) return std::nullopt;
    // A browser keeps one set of cookies for all ports of a host.
    const std::string cookie = fmt::format("millrace-{}", host.substr(host.rfind(':') + 1));
    if (const auto given = query_value(request.query, "token")) {
        if (!are_equal(*given, token_)) return refuse("the token is not the one that millrace ui printed");
        return record::HttpReply{303, kPlain, "",
                                 fmt::format("Location: /\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
                                             "Set-Cookie: {}={}; Path=/; HttpOnly; SameSite=Strict\r\n",
                                             cookie, token_)};
    }
    if (has_cookie(request, cookie)) return std::nullopt;
    return refuse("open the address with the token that millrace ui printed");
}

}  // namespace millrace::ui
