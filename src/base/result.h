#pragma once
// Errors as values. A function that can fail at an edge (file, recipe, device, plan) returns Result<T>; broken invariants abort
// through MILLRACE_ASSERT. Nothing throws inside a step.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace millrace::base {

/// What went wrong, where (a file, a line, a key: something the user can open), and what it followed from.
struct Error {
    std::string message;     ///< what was wrong and what would be right, without the place
    std::string place;       ///< "recipe.toml:12", "train-images.idx", empty when the message says it all
    int exit_status = 2;     ///< 1 finding or regression, 2 usage or bad input, 3 could not attach, 4 no data
    bool disk_full = false;  ///< removing files would help
    std::shared_ptr<const Error> cause;

    Error() = default;
    explicit Error(std::string what, std::string where = {}, int status = 2)
        : message(std::move(what)), place(std::move(where)), exit_status(status) {}

    /// This error as the consequence of `reason`.
    [[nodiscard]] Error because(Error reason) const {
        Error copy = *this;
        copy.cause = std::make_shared<const Error>(std::move(reason));
        return copy;
    }

    /// "place: message\n  because place: message ..." for a person.
    [[nodiscard]] std::string text() const {
        std::string out = place.empty() ? message : place + ": " + message;
        for (const Error* at = cause.get(); at != nullptr; at = at->cause.get())
            out += "\n  because " + (at->place.empty() ? at->message : at->place + ": " + at->message);
        return out;
    }
};

struct Unit {};

template <class T = Unit>
class [[nodiscard]] Result {
public:
    using value_type = T;
    Result(T value) : value_(std::move(value)) {}      // NOLINT: implicit on purpose, `return value;`
    Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose, `return Error{...};`

    [[nodiscard]] bool ok() const { return value_.has_value(); }
    explicit operator bool() const { return ok(); }

    [[nodiscard]] T& value() & {
        require();
        return *value_;
    }
    [[nodiscard]] const T& value() const& {
        require();
        return *value_;
    }
    [[nodiscard]] T&& value() && {
        require();
        return std::move(*value_);
    }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    [[nodiscard]] const Error& error() const { return error_; }

private:
    void require() const {
        if (!value_) {
            std::fprintf(stderr, "millrace: value of a failed result: %s\n", error_.text().c_str());
            std::abort();
        }
    }
    std::optional<T> value_;
    Error error_;
};

using Status = Result<Unit>;
inline Status ok() { return Unit{}; }

/// The defaults name the caller. The builtins, because clang-tidy cannot read libstdc++'s std::source_location.
[[noreturn]] inline void fail_assert(const char* expression, const std::string& context, const char* file = __builtin_FILE(),
                                     unsigned line = __builtin_LINE()) {
    std::fprintf(stderr, "millrace: %s:%u: broken invariant: %s %s\n", file, line, expression, context.c_str());
    std::abort();
}

}  // namespace millrace::base

#define MILLRACE_JOIN_(a, b) a##b
#define MILLRACE_JOIN(a, b) MILLRACE_JOIN_(a, b)

/// Returns the error of a failed Status/Result expression from the enclosing function.
#define MILLRACE_TRY(expression) \
    do { \
        if (auto result_ = (expression); !result_.ok()) return result_.error(); \
    } while (false)

/// `MILLRACE_LET(name, expression)` binds the value or returns the error.
#define MILLRACE_LET(name, expression) \
    auto MILLRACE_JOIN(result_of_, __LINE__) = (expression); \
    if (!MILLRACE_JOIN(result_of_, __LINE__).ok()) return MILLRACE_JOIN(result_of_, __LINE__).error(); \
    auto name = std::move(MILLRACE_JOIN(result_of_, __LINE__)).value()

/// `MILLRACE_SET(place, expression)` assigns the value to a place, such as `list.emplace_back()`, or returns the error before it
/// looks at the place.
#define MILLRACE_SET(place, expression) \
    do { \
        auto result_ = (expression); \
        if (!result_.ok()) return result_.error(); \
        place = std::move(result_).value(); \
    } while (false)

/// Aborts with context when an invariant of our own code is broken. Never for bad input.
#define MILLRACE_ASSERT(condition, ...) \
    do { \
        if (!(condition)) ::millrace::base::fail_assert(#condition, std::string{__VA_ARGS__}); \
    } while (false)
