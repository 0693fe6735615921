#include "diagnose/reading/python_tokens.h"

#include <algorithm>

namespace millrace::diagnose {
namespace {

constexpr std::size_t kDeepest = 200;  ///< as CPython's own

bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// Bytes of other alphabets are letters: identifiers may have them, signs may not.
bool begins_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool continues_name(char c) { return begins_name(c) || is_digit(c); }

bool is_prefix(std::string_view name) {
    return name.size() <= 2 && name.find_first_not_of("rRbBuUfFtT") == std::string_view::npos;
}

char closing(char bracket) { return bracket == '(' ? ')' : bracket == '[' ? ']' : '}'; }

}  // namespace

std::string with_plain_line_ends(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n') continue;
        out += text[at] == '\r' ? '\n' : text[at];
    }
    return out;
}

bool PythonTokens::in_literal() const {
    return !open_.empty() && (open_.back().place == Place::kString || open_.back().place == Place::kFormat);
}

PythonToken PythonTokens::taken(PythonToken::Kind kind, std::size_t length) {
    at_ = std::min(at_, text_.size());  // a backslash at the end
    PythonToken token{kind, text_.substr(at_, length), line_, column_, open_.size()};
    at_ += token.text.size();
    return token;
}

PythonToken PythonTokens::broken() {
    broken_ = true;
    return taken(PythonToken::Kind::kBroken, 0);
}

void PythonTokens::pass_comment() { at_ = std::min(text_.find('\n', at_), text_.size()); }

/// Up to the first token of a logical line: lines without any do not count.
void PythonTokens::begin_line() {
    for (column_ = 0; !at_end(); ++at_) {
        const char c = peek();
        if (c == '#') pass_comment();
        if (peek() == '\n') {
            ++line_;
            column_ = 0;
        } else if (c == ' ') {
            ++column_;
        } else if (c == '\t') {
            column_ = column_ / 8 * 8 + 8;
        } else if (c == '\f') {
            column_ = 0;
        } else {
            break;
        }
    }
    line_begins_ = false;
}

/// False for a backslash that continues nothing.
bool PythonTokens::pass_blanks() {
    if (line_begins_) begin_line();
    for (; !at_end(); ++at_) {
        const char c = peek();
        if (c == '\\') {
            if (peek(1) != '\n') return false;
            ++at_, ++line_;
        } else if (c == '#') {
            pass_comment();
            --at_;
        } else if (c == '\n' && !open_.empty()) {
            ++line_;
        } else if (c != ' ' && c != '\t' && c != '\f') {
            break;
        }
    }
    return true;
}

bool PythonTokens::ends_string(const Open& string) const {
    if (peek() != string.closes) return false;
    return !string.triple || (peek(1) == string.closes && peek(2) == string.closes);
}

bool PythonTokens::pass_plain_string(const Open& string) {
    for (; !at_end(); ++at_) {
        if (ends_string(string)) {
            at_ += string.triple ? 3 : 1;
            return true;
        }
        // Of a raw string, too: a quote behind a backslash does not end it.
        const bool escaped = peek() == '\\';
        if (escaped) ++at_;
        if (peek() != '\n') continue;
        if (!string.triple && !escaped) return false;
        ++line_;
    }
    return false;
}

void PythonTokens::pass_escape(bool raw) {
    ++at_;
    if (!raw && peek() == 'N' && peek(1) == '{') {
        // A character by its name is no field.
        while (!at_end() && peek() != '}' && peek() != '\n') ++at_;
    } else if (peek() != '{' && peek() != '}' && peek() != '\n') {
        ++at_;
    } else if (peek() == '\n') {
        ++line_, ++at_;
    }
}

/// The text of a string with fields, up to its end or to a field. Gives the bracket that opens or closes a field, or nothing at
/// the string's end; false when that does not come.
bool PythonTokens::pass_literal(PythonToken& token) {
    while (!at_end()) {
        const Open here = open_.back();
        const char c = peek();
        if (here.place == Place::kString && ends_string(here)) {
            at_ += here.triple ? 3 : 1;
            open_.pop_back();
            return true;
        }
        if (c == '{' && here.place == Place::kString && peek(1) == '{') {
            at_ += 2;
        } else if (c == '{') {
            if (open_.size() >= kDeepest) return false;
            token = taken(PythonToken::Kind::kSign, 1);
            open_.push_back({Place::kField, '}', here.triple, here.raw});
            return true;
        } else if (c == '}' && here.place == Place::kFormat) {
            open_.resize(open_.size() - 2);
            token = taken(PythonToken::Kind::kSign, 1);
            return true;
        } else if (c == '\\') {
            pass_escape(here.raw);
        } else {
            if (c == '\n' && !here.triple) return false;
            line_ += c == '\n' ? 1 : 0;
            ++at_;
        }
    }
    return false;
}

/// A string whose first `prefix` characters are letters.
bool PythonTokens::take_string(std::size_t prefix) {
    const std::string_view letters = text_.substr(at_, prefix);
    at_ += prefix;
    const char quote = peek();
    const bool triple = peek(1) == quote && peek(2) == quote;
    const bool raw = letters.find_first_of("rR") != std::string_view::npos;
    const Open string{Place::kString, quote, triple, raw};
    at_ += triple ? 3 : 1;
    if (letters.find_first_of("fFtT") == std::string_view::npos) return pass_plain_string(string);
    if (open_.size() >= kDeepest) return false;
    open_.push_back(string);
    return true;
}

bool PythonTokens::take_sign(PythonToken& token) {
    const char c = peek();
    if (c == '(' || c == '[' || c == '{') {
        if (open_.size() >= kDeepest) return false;
        token = taken(PythonToken::Kind::kSign, 1);
        open_.push_back({Place::kBracket, closing(c), false, false});
        return true;
    }
    if (c == ')' || c == ']' || c == '}') {
        if (open_.empty() || open_.back().closes != c) return false;
        open_.pop_back();
    } else if (c == ':' && !open_.empty() && open_.back().place == Place::kField) {
        token = taken(PythonToken::Kind::kSign, 1);
        Open format = open_.back();
        format.place = Place::kFormat;
        open_.push_back(format);
        return true;
    }
    token = taken(PythonToken::Kind::kSign, c == ':' && peek(1) == '=' ? 2 : 1);
    return c != '\0';
}

PythonToken PythonTokens::next() {
    PythonToken token;
    if (broken_) return broken();
    while (in_literal()) {
        if (!pass_literal(token)) return broken();
        if (token.kind == PythonToken::Kind::kSign) return token;
    }
    if (!pass_blanks()) return broken();
    if (at_end()) return open_.empty() ? taken(PythonToken::Kind::kEnd, 0) : broken();
    const char c = peek();
    if (c == '\n') {
        token = taken(PythonToken::Kind::kLineEnd, 1);
        ++line_;
        line_begins_ = true;
        return token;
    }
    std::size_t length = 0;
    while (at_ + length < text_.size() && continues_name(text_[at_ + length])) ++length;
    const char behind = peek(length);
    if (behind == '\'' || behind == '"') {
        if (is_prefix(text_.substr(at_, length))) {
            token = {PythonToken::Kind::kSign, text_.substr(at_ + length, 1), line_, column_, open_.size()};
            return take_string(length) ? token : broken();
        }
    }
    if (length > 0) return taken(begins_name(c) ? PythonToken::Kind::kName : PythonToken::Kind::kSign, length);
    return take_sign(token) ? token : broken();
}

}  // namespace millrace::diagnose
