#pragma once
// What a Python program calls, by function and line: enough to say on which line a function calls another one, nothing more.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace millrace::diagnose {

class PythonSource {
public:
    using Scope = std::uint32_t;  ///< the code of the module, a function, a class or a lambda

    explicit PythonSource(std::string_view text);
    PythonSource(const PythonSource&) = delete;
    PythonSource& operator=(const PythonSource&) = delete;

    /// False: the text is no Python, and nothing is known.
    [[nodiscard]] bool sound() const { return sound_; }

    /// What begins on `line`, as code objects have it: a decorated function with its first decorator, the module with 0 or 1.
    /// Nothing when no function or class of that name does, or several lambdas do.
    [[nodiscard]] std::optional<Scope> scope(std::string_view name, int line) const;
    /// Some function or class has the name.
    [[nodiscard]] bool defines(std::string_view name) const { return defined_.contains(name); }

    enum class Calls { kNone, kOneLine, kSeveralLines };
    struct Found {
        Calls calls = Calls::kNone;
        int line = 0;  ///< of the name, where all calls have one line
    };
    /// Calls of something whose last name is `name`: "item" of "loss.item()". Those of functions, classes and lambdas within the
    /// scope are not its own; those of comprehensions count, which since Python 3.12 have no frame.
    [[nodiscard]] Found calls(Scope scope, std::string_view name) const;

private:
    struct Key {
        std::uint32_t number;  ///< a scope, or a line
        std::string_view name;
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const {
            return std::hash<std::string_view>{}(key.name) * 31 + key.number * 0x9e3779b97f4a7c15u;
        }
    };
    class Scan;

    Scope add_scope(std::string_view name, int line);
    void add_call(Scope scope, std::string_view name, int line);

    std::string text_;
    std::unordered_map<Key, Scope, KeyHash> scopes_;  ///< by line and name
    std::unordered_map<Key, int, KeyHash> calls_;     ///< by scope and name: the line, or kSeveral
    std::unordered_set<std::string_view> defined_;
    Scope count_ = 1;  ///< 0 is the module
    bool sound_ = false;
};

/// The last names of what each line calls: "open" and "dumps" of "open(json.dumps(x))".
std::multimap<int, std::string> calls_by_line(std::string_view text);

}  // namespace millrace::diagnose
