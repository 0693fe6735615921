#include "diagnose/reading/python_source.h"

#include "diagnose/reading/python_tokens.h"

namespace millrace::diagnose {
namespace {

constexpr int kSeveralLines = -1;
constexpr PythonSource::Scope kModule = 0, kAmbiguous = 0xffff'ffff;
constexpr std::string_view kLambda = "<lambda>";

}  // namespace

/// One pass over the tokens.
class PythonSource::Scan {
public:
    explicit Scan(PythonSource& source) : source_(source), tokens_(source.text_) {}

    /// False: no Python.
    bool run() {
        for (;;) {
            const PythonToken token = tokens_.next();
            if (token.kind == PythonToken::Kind::kBroken) return false;
            if (token.kind == PythonToken::Kind::kEnd) return true;
            if (token.kind == PythonToken::Kind::kLineEnd) {
                end_line();
                continue;
            }
            if (first_) begin_line(token);
            take(token);
            before_ = token;
            first_ = false;
        }
    }

private:
    struct Block {
        Scope scope;
        int column;  ///< of its "def" or "class": what stands further right is in it
    };
    struct Lambda {
        std::size_t depth;
        int line;
        Scope inside;   ///< whose code stands there now
        bool has_body;  ///< false: its parameters are read, which are the code around
    };
    enum class Header { kNone, kKeyword, kName, kRest };

    [[nodiscard]] Scope here() const {
        if (!lambdas_.empty()) return lambdas_.back().inside;
        return blocks_.empty() ? kModule : blocks_.back().scope;
    }

    void end_line() {
        lambdas_.clear();
        header_ = Header::kNone;
        before_ = {};
        first_ = true;
    }

    void begin_line(const PythonToken& token) {
        while (!blocks_.empty() && blocks_.back().column >= token.column) blocks_.pop_back();
        const bool decorator = token.is('@');
        const bool defines = token.is_name("def") || token.is_name("class") || token.is_name("async");
        if (!decorator && !defines) decorated_ = 0;
        // Decorators stand before what they decorate, and the code object begins with the first.
        if (decorator && decorated_ == 0) decorated_ = token.line;
        begins_ = decorated_ != 0 ? decorated_ : token.line;
        if (!decorator) decorated_ = 0;
    }

    void take(const PythonToken& token) {
        const bool may_define = first_ || before_.is_name("async");
        if (header_ == Header::kNone && may_define && (token.is_name("def") || token.is_name("class"))) {
            header_ = Header::kKeyword;
        } else if (header_ == Header::kKeyword) {
            header_ = token.kind == PythonToken::Kind::kName ? Header::kName : Header::kNone;
            defined_ = token.text;
        } else {
            take_code(token);
            if (header_ == Header::kName) header_ = Header::kRest;
        }
    }

    void take_code(const PythonToken& token) {
        // What a header calls (defaults, bases) is called where it stands; the name that it defines is not called.
        if (token.is('(') && before_.kind == PythonToken::Kind::kName && header_ != Header::kName)
            source_.add_call(here(), before_.text, before_.line);
        if (token.is_name("lambda")) {
            lambdas_.push_back({token.depth, token.line, here(), false});
        } else if (token.is(',') || token.is(';') || token.is_name("for")) {
            end_bodies(token.depth);
        } else if (token.is(')') || token.is(']') || token.is('}')) {
            while (!lambdas_.empty() && lambdas_.back().depth > token.depth) lambdas_.pop_back();
        } else if (token.is(':')) {
            take_colon(token);
        }
    }

    void end_bodies(std::size_t depth) {
        while (!lambdas_.empty() && lambdas_.back().depth == depth && lambdas_.back().has_body) lambdas_.pop_back();
    }

    void take_colon(const PythonToken& token) {
        end_bodies(token.depth);
        if (!lambdas_.empty() && lambdas_.back().depth == token.depth) {
            lambdas_.back().inside = source_.add_scope(kLambda, lambdas_.back().line);
            lambdas_.back().has_body = true;
        } else if (header_ != Header::kNone && token.depth == 0) {
            header_ = Header::kNone;
            source_.defined_.insert(defined_);
            blocks_.push_back({source_.add_scope(defined_, begins_), token.column});
        }
    }

    PythonSource& source_;
    PythonTokens tokens_;
    std::vector<Block> blocks_;
    std::vector<Lambda> lambdas_;
    Header header_ = Header::kNone;
    PythonToken before_;
    std::string_view defined_;
    int begins_ = 0, decorated_ = 0;
    bool first_ = true;
};

PythonSource::PythonSource(std::string_view text) : text_(with_plain_line_ends(text)) { sound_ = Scan(*this).run(); }

PythonSource::Scope PythonSource::add_scope(std::string_view name, int line) {
    const auto [entry, fresh] = scopes_.emplace(Key{static_cast<std::uint32_t>(line), name}, count_);
    if (!fresh) entry->second = kAmbiguous;
    return count_++;
}

void PythonSource::add_call(Scope scope, std::string_view name, int line) {
    const auto [entry, fresh] = calls_.emplace(Key{scope, name}, line);
    if (!fresh && entry->second != line) entry->second = kSeveralLines;
}

std::optional<PythonSource::Scope> PythonSource::scope(std::string_view name, int line) const {
    if (!sound_ || line < 0) return std::nullopt;
    if (name == "<module>") return line <= 1 ? std::optional(kModule) : std::nullopt;
    const auto entry = scopes_.find(Key{static_cast<std::uint32_t>(line), name});
    if (entry == scopes_.end() || entry->second == kAmbiguous) return std::nullopt;
    return entry->second;
}

PythonSource::Found PythonSource::calls(Scope scope, std::string_view name) const {
    const auto entry = calls_.find(Key{scope, name});
    if (!sound_ || entry == calls_.end()) return {};
    if (entry->second == kSeveralLines) return {Calls::kSeveralLines, 0};
    return {Calls::kOneLine, entry->second};
}

std::multimap<int, std::string> calls_by_line(std::string_view text) {
    const std::string plain = with_plain_line_ends(text);
    std::multimap<int, std::string> calls;
    PythonTokens tokens(plain);
    PythonToken before;
    for (PythonToken token = tokens.next(); token.kind < PythonToken::Kind::kEnd; token = tokens.next()) {
        if (token.is('(') && before.kind == PythonToken::Kind::kName) calls.emplace(before.line, before.text);
        before = token;
    }
    return calls;
}

}  // namespace millrace::diagnose
