#pragma once
// A command below `millrace data` as its supplier describes it: the command line is made from this.

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

namespace millrace::data {

struct CommandOption {
    std::string name, meaning;  ///< "--train", "training images"; "FOLDER" stands without a name
    /// What it is unless it is given, and of which type. A bool is a flag.
    std::variant<std::uint32_t, std::uint64_t, double, bool, std::string> value;
    std::string placeholder = {};  ///< the word for its value in the help; empty: the type's
    bool required = false;

    template <class T>
    [[nodiscard]] const T& as() const {
        return std::get<T>(value);
    }
};
using CommandOptions = std::vector<CommandOption>;

/// Told how much of how much is done; called from one thread at a time.
using CommandProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct DataCommand {
    std::string name, meaning, examples;
    CommandOptions options;
    /// Gives a text about what was done, for people.
    std::function<base::Result<std::string>(const CommandOptions& options, const CommandProgress& progress)> run;
};

/// `millrace data show`: what lies at a path, as training would read it.
DataCommand show_command();

}  // namespace millrace::data
