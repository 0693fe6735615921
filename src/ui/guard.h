#pragma once
// Who may ask: the machine itself, or, where another address was asked for, whoever has the token.

#include <optional>
#include <string>

#include "record/http_responder.h"

namespace millrace::ui {

/// 32 hexadecimal digits from the system's random numbers.
base::Result<std::string> new_token();

/// "a b" of "a%20b"; nothing where a "%" is followed by no two hexadecimal digits, or stands for a zero byte.
std::optional<std::string> percent_decoded(std::string_view text);
/// The decoded value of a query's key; nothing where it is missing or malformed.
std::optional<std::string> query_value(std::string_view query, std::string_view key);

class Guard {
public:
    /// `token` empty: only names of this machine's own loopback may be asked for.
    explicit Guard(std::string token) : token_(std::move(token)) {}

    /// What to answer instead of a page. A name of a host is refused unless it is "localhost" (somebody else's name may be made
    /// to lead here), and so is a page of another origin, and who has no token. With the right token in the query: the answer
    /// that keeps it as a cookie.
    [[nodiscard]] std::optional<record::HttpReply> refusal(const record::HttpRequest& request) const;

private:
    [[nodiscard]] bool knows_host(std::string_view host) const;
    [[nodiscard]] bool has_cookie(const record::HttpRequest& request, const std::string& name) const;

    std::string token_;
};

}  // namespace millrace::ui
