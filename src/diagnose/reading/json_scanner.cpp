#include "diagnose/reading/json_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace millrace::diagnose {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;
constexpr std::size_t kLongestNumber = 512;

bool is_space(char letter) { return letter == ' ' || letter == '\n' || letter == '\t' || letter == '\r'; }

/// Numbers and words: what stands without quotes.
bool is_bare(char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           letter == '-' || letter == '+' || letter == '.';
}

void append_utf8(std::string& out, std::uint32_t code) {
    const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xc0 | code >> 6);
        put(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        put(0xe0 | code >> 12);
        put(0x80 | (code >> 6 & 0x3f));
        put(0x80 | (code & 0x3f));
    } else {
        put(0xf0 | code >> 18);
        put(0x80 | (code >> 12 & 0x3f));
        put(0x80 | (code >> 6 & 0x3f));
        put(0x80 | (code & 0x3f));
    }
}

std::string shown(char letter) {
    return letter > 0x20 && letter < 0x7f ? fmt::format("'{}'", letter)
                                          : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(letter));
}

}  // namespace

JsonScanner::JsonScanner(io::ByteSource& source, std::function<void()> moved)
    : source_(&source), moved_(std::move(moved)), buffer_(2 * kPiece) {}

bool JsonScanner::fail(Failure failure, std::string problem) {
    if (failed()) return false;
    failure_ = failure;
    problem_ = std::move(problem);
    return false;
}

bool JsonScanner::fill() {
    if (failed()) return false;
    if (at_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
        passed_ += at_;
        end_ -= at_;
        at_ = 0;
    }
    if (end_ == buffer_.size()) return false;
    const auto got = source_->read(std::span(buffer_).subspan(end_, std::min(kPiece, buffer_.size() - end_)));
    if (!got.ok()) {
        source_problem_ = got.error().text();
        return false;
    }
    end_ += *got;
    if (moved_) moved_();
    return *got > 0;
}

bool JsonScanner::to_token() {
    for (;;) {
        while (at_ < end_ && is_space(buffer_[at_])) ++at_;
        if (at_ < end_) return !failed();
        if (!fill()) return false;
    }
}

JsonScanner::Kind JsonScanner::peek() {
    if (!to_token()) {
        fail(Failure::kTorn, "ends where a value should stand");
        return Kind::kNothing;
    }
    switch (buffer_[at_]) {
        case '{': return Kind::kObject;
        case '[': return Kind::kArray;
        case '"': return Kind::kText;
        case 't': return Kind::kTrue;
        case 'f': return Kind::kFalse;
        case 'n': return Kind::kNull;
        default: break;
    }
    if (is_bare(buffer_[at_])) return Kind::kNumber;
    fail(Failure::kBroken, fmt::format("{} stands where a value should", shown(buffer_[at_])));
    return Kind::kNothing;
}

bool JsonScanner::open(char bracket) {
    const Kind wanted = bracket == '{' ? Kind::kObject : Kind::kArray;
    const Kind kind = peek();
    if (kind != wanted) {
        if (kind != Kind::kNothing) skip();
        return false;
    }
    if (depth_ == kDeepest) return fail(Failure::kBroken, fmt::format("opens more than {} brackets within each other", kDeepest));
    ++at_;
    begun_[++depth_] = false;
    return true;
}

bool JsonScanner::enter_object() { return open('{'); }
bool JsonScanner::enter_array() { return open('['); }

/// To the next entry of the innermost bracket; false when it closes here.
bool JsonScanner::expect_separator(char close) {
    if (!to_token()) return fail(Failure::kTorn, "ends inside a bracket");
    if (buffer_[at_] == close) {
        ++at_;
        --depth_;
        return false;
    }
    if (begun_[depth_]) {
        if (buffer_[at_] != ',')
            return fail(Failure::kBroken, fmt::format("{} stands where ',' or '{}' should", shown(buffer_[at_]), close));
        ++at_;
        if (!to_token()) return fail(Failure::kTorn, "ends after a comma");
        // A comma before the closing bracket: lists that are written piece by piece have it.
        if (buffer_[at_] == close) {
            ++at_;
            --depth_;
            return false;
        }
    }
    begun_[depth_] = true;
    return true;
}

bool JsonScanner::next_key(std::string_view& key) {
    if (failed() || depth_ == 0 || !expect_separator('}')) return false;
    if (buffer_[at_] != '"') return fail(Failure::kBroken, fmt::format("{} stands where a key should", shown(buffer_[at_])));
    key = scan_text();
    if (failed()) return false;
    // The colon may lie in the next piece, and fetching that moves what `key` looks at.
    if (at_ == end_ || is_space(buffer_[at_])) {
        if (key.data() != scratch_.data()) scratch_.assign(key);
        key = scratch_;
        if (!to_token()) return fail(Failure::kTorn, "ends after a key");
    }
    if (buffer_[at_] != ':') return fail(Failure::kBroken, fmt::format("{} stands where ':' should", shown(buffer_[at_])));
    ++at_;
    return true;
}

bool JsonScanner::next_element() { return !failed() && depth_ > 0 && expect_separator(']'); }

std::string_view JsonScanner::text() {
    const Kind kind = peek();
    if (kind == Kind::kText) return scan_text();
    if (kind != Kind::kNothing) skip();
    return {};
}

std::string_view JsonScanner::number() {
    const Kind kind = peek();
    if (kind == Kind::kText) return scan_text();
    // Words in capitals (NaN, Infinity) begin like numbers here; the others do not.
    if (kind == Kind::kNumber) return scan_bare();
    if (kind != Kind::kNothing) skip();
    return {};
}

std::string_view JsonScanner::scan_text() {
    std::size_t from = at_ + 1;
    for (;;) {
        const char* begin = buffer_.data() + from;
        const auto* quote = static_cast<const char*>(std::memchr(begin, '"', end_ - from));
        const std::size_t length = quote != nullptr ? static_cast<std::size_t>(quote - begin) : end_ - from;
        if (length > kTextCap || std::memchr(begin, '\\', length) != nullptr) return scan_long_text(from);
        if (quote != nullptr) {
            at_ = from + length + 1;
            return {begin, length};
        }
        const std::size_t before = at_;
        if (!fill()) {
            fail(Failure::kTorn, "ends inside a text");
            return {};
        }
        from -= before;
    }
}

/// Texts with escapes, and those longer than what is kept.
std::string_view JsonScanner::scan_long_text(std::size_t from) {
    scratch_.clear();
    at_ = from;
    for (;;) {
        while (end_ - at_ < 12 && fill()) {  // 12: two escapes that are one letter
        }
        if (at_ == end_) {
            fail(Failure::kTorn, "ends inside a text");
            return {};
        }
        const char letter = buffer_[at_];
        if (letter == '"') {
            ++at_;
            return scratch_;
        }
        if (letter == '\\') {
            append_escape(at_);
        } else {
            if (scratch_.size() < kTextCap) scratch_.push_back(letter);
            ++at_;
        }
    }
}

void JsonScanner::append_escape(std::size_t& at) {
    const auto hex = [&](std::size_t from) -> std::int64_t {
        std::int64_t value = 0;
        for (std::size_t i = from; i < from + 4; ++i) {
            const char letter = i < end_ ? buffer_[i] : 'x';
            const int digit = letter >= '0' && letter <= '9'   ? letter - '0'
                              : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                              : letter >= 'A' && letter <= 'F' ? letter - 'A' + 10
                                                               : -1;
            if (digit < 0) return -1;
            value = value * 16 + digit;
        }
        return value;
    };
    if (at + 1 >= end_) {
        fail(Failure::kTorn, "ends inside a text");
        at = end_;
        return;
    }
    const char letter = buffer_[at + 1];
    const bool room = scratch_.size() < kTextCap;
    constexpr std::uint32_t kReplacement = 0xfffd;
    if (letter != 'u') {
        const std::string_view from = "bfnrt", to = "\b\f\n\r\t";
        const std::size_t which = from.find(letter);
        if (room) scratch_.push_back(which == std::string_view::npos ? letter : to[which]);
        at += 2;
        return;
    }
    const std::int64_t first = hex(at + 2);
    at += first < 0 ? 2 : 6;
    std::uint32_t code = first < 0 ? kReplacement : static_cast<std::uint32_t>(first);
    if (code >= 0xd800 && code < 0xdc00) {
        const bool pair = at + 1 < end_ && buffer_[at] == '\\' && buffer_[at + 1] == 'u';
        const std::int64_t second = pair ? hex(at + 2) : -1;
        if (second >= 0xdc00 && second < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (static_cast<std::uint32_t>(second) - 0xdc00);
            at += 6;
        }
    }
    if (code >= 0xd800 && code < 0xe000) code = kReplacement;
    if (room) append_utf8(scratch_, code);
}

std::string_view JsonScanner::scan_bare() {
    std::size_t length = 0;
    for (;;) {
        while (at_ + length < end_ && is_bare(buffer_[at_ + length])) ++length;
        if (length > kLongestNumber) {
            fail(Failure::kBroken, fmt::format("has a number of more than {} characters", kLongestNumber));
            return {};
        }
        if (at_ + length < end_ || !fill()) break;
    }
    const std::string_view word(buffer_.data() + at_, length);
    at_ += length;
    return failed() ? std::string_view{} : word;
}

void JsonScanner::skip() {
    const Kind kind = peek();
    switch (kind) {
        case Kind::kNothing: return;
        case Kind::kText: return skip_text();
        case Kind::kObject:
        case Kind::kArray: return skip_nested();
        case Kind::kNumber: scan_bare(); return;
        case Kind::kTrue:
        case Kind::kFalse:
        case Kind::kNull: break;
    }
    const std::string_view word = scan_bare();
    const std::string_view wanted = kind == Kind::kTrue ? "true" : kind == Kind::kFalse ? "false" : "null";
    if (word == wanted || word == "nan" || failed()) return;
    if (at_ == end_ && wanted.starts_with(word)) return static_cast<void>(fail(Failure::kTorn, "ends inside a word"));
    fail(Failure::kBroken, fmt::format("'{}' is no value", word.substr(0, 20)));
}

void JsonScanner::skip_text() {
    ++at_;
    for (;;) {
        while (at_ < end_ && buffer_[at_] != '"' && buffer_[at_] != '\\') ++at_;
        const bool escape = at_ < end_ && buffer_[at_] == '\\';
        if (at_ + (escape ? 1 : 0) < end_) {
            at_ += escape ? 2 : 1;
            if (!escape) return;
        } else if (!fill()) {
            at_ = end_;
            return static_cast<void>(fail(Failure::kTorn, "ends inside a text"));
        }
    }
}

/// Looks for the closing bracket alone: what lies inside is none of our business.
void JsonScanner::skip_nested() {
    std::size_t open = 0;
    for (;;) {
        if (at_ == end_ && !fill()) return static_cast<void>(fail(Failure::kTorn, "ends inside a bracket"));
        switch (buffer_[at_]) {
            case '"':
                skip_text();
                if (failed()) return;
                break;
            case '{':
            case '[':
                ++at_;
                if (depth_ + ++open > kDeepest)
                    return static_cast<void>(
                        fail(Failure::kBroken, fmt::format("opens more than {} brackets within each other", kDeepest)));
                break;
            case '}':
            case ']':
                ++at_;
                if (--open == 0) return;
                break;
            default: ++at_;
        }
    }
}

bool JsonScanner::at_end() {
    if (failed()) return false;
    if (!to_token()) return true;
    return fail(Failure::kBroken, fmt::format("goes on with {} behind its end", shown(buffer_[at_])));
}

}  // namespace millrace::diagnose
