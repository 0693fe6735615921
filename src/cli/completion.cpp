#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "cli/commands.h"
#include "train/recipe_keys.h"

namespace millrace::cli {
namespace {

// The scripts hand over the words of a line up to the cursor and get a line "WORD<tab>MEANING" for each that fits, or ":" where
// the name of a file is wanted.
constexpr const char* kBash = R"sh(# Completes millrace's words in bash; the program says what fits.
_millrace() {
    local i line words=()
    for ((i = 1; i <= COMP_CWORD; ++i)); do  # --device=cpu are three words here
        if ((i > 1)) && [[ ${COMP_WORDS[i]} == = || ${COMP_WORDS[i - 1]} == = ]]; then
            words[-1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
    done
    local typed=${COMP_WORDS[COMP_CWORD]#=}
    local before=${words[-1]%"$typed"}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :) compopt -o default ;;
            *)
                line=${line%%$'\t'*}
                [[ $line != *= ]] || compopt -o nospace
                COMPREPLY+=("${line#"$before"}")
                ;;
        esac
    done < <("${1/#\~/$HOME}" completion -- "${words[@]}" 2> /dev/null)
}
complete -F _millrace millrace
)sh";

constexpr const char* kZsh = R"sh(#compdef millrace
# Completes millrace's words in zsh; the program says what fits.
_millrace() {
    local line
    local -a found shown
    for line in "${(@f)$(${(Q)words[1]} completion -- "${(@Q)words[2,CURRENT]}" 2> /dev/null)}"; do
        if [[ $line == : ]]; then
            [[ $PREFIX != *=* ]] || compset -P '*='
            _files
            return
        fi
        [[ -z $line ]] && continue
        found+=("${line%%$'\t'*}")
        shown+=("${${line%$'\t'}/$'\t'/  -- }")
    done
    local -a end
    [[ $found[1] != *= ]] || end=(-S '')
    compadd -Q -l -d shown $end -- $found
}
[[ $funcstack[1] != _millrace ]] || _millrace "$@"
(( ! $+functions[compdef] )) || compdef _millrace millrace
)sh";

constexpr const char* kFish = R"sh(# Completes millrace's words in fish; the program says what fits.
function __millrace_words
    set -l words (commandline -opc)
    for line in ($words[1] completion -- $words[2..-1] "$(commandline -ct)" 2> /dev/null)
        if test "$line" = :
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c millrace -f -a '(__millrace_words)'
)sh";

/// Where the words before the one that is completed lead to.
struct Position {
    const CommandText* command;
    const OptionText* waiting = nullptr;      ///< an option whose value comes next
    std::vector<std::string> arguments = {};  ///< of the command, positional ones
    bool is_behind = false;                   ///< the words are those of a command to run
};

const OptionText* find_named(const CommandText& command, const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    const auto at = std::ranges::find_if(
        command.options, [&](const OptionText& option) { return std::ranges::find(option.names, name) != option.names.end(); });
    return at == command.options.end() ? nullptr : &*at;
}

void advance(Position& at, const std::string& word) {
    const auto& commands = at.command->commands;
    const auto within = std::ranges::find(commands, word, [](const CommandText& each) { return each.words.back(); });
    if (at.waiting != nullptr) {
        at.waiting = nullptr;
    } else if (word == "--" && at.command->takes_command) {
        at.is_behind = true;
    } else if (word.starts_with('-')) {
        const OptionText* option = find_named(*at.command, word);
        if (option != nullptr && !option->value.empty() && word.find('=') == std::string::npos) at.waiting = option;
    } else if (within != commands.end()) {
        at.command = &*within;
    } else {
        at.arguments.push_back(word);
    }
}

class Offers {
public:
    Offers(Position at, std::string word) : at_(std::move(at)), word_(std::move(word)) {}

    std::vector<std::string> all() {
        const std::size_t equals = word_.find('=');
        const OptionText* named = find_named(*at_.command, word_);
        if (at_.is_behind)
            out_.emplace_back(":");
        else if (at_.waiting != nullptr)
            add_values(*at_.waiting, "");
        else if (named != nullptr && equals != std::string::npos)
            add_values(*named, word_.substr(0, equals + 1));
        else if (word_.starts_with('-'))
            add_options();
        else
            add_words();
        return out_;
    }

private:
    void add(const std::string& word, const std::string& meaning) {
        if (word.starts_with(word_)) out_.push_back(word + "\t" + meaning);
    }
    void add_options() {
        for (const OptionText& option : at_.command->options)
            for (const std::string& name : option.names) add(name, option.meaning);
    }
    /// Commands and positional arguments, or options where there are neither.
    void add_words() {
        if (at_.arguments.empty())
            for (const CommandText& each : at_.command->commands) add(each.words.back(), each.meaning);
        const auto arguments = positional_arguments(*at_.command);
        if (at_.arguments.size() < arguments.size())
            add_values(*arguments[at_.arguments.size()], "");
        else if (!arguments.empty() && arguments.back()->repeats)
            add_values(*arguments.back(), "");
        if (out_.empty() && word_.empty()) add_options();
    }
    void add_values(const OptionText& option, const std::string& lead) {
        for (const std::string& choice : option.choices) add(lead + choice, "");
        if (option.value == "KEY=VALUE") add_keys(lead);
        for (const char* of_file : {"FILE", "DIR", "FOLDER", "PATH", "RUN", "RECIPE", "STUDY", "CSV", "INPUT", "BEFORE", "AFTER"})
            if (option.choices.empty() && option.value.find(of_file) != std::string::npos) {
                out_.emplace_back(":");
                return;
            }
    }
    /// The keys of the line's recipe, or the values of one that takes only some.
    void add_keys(const std::string& lead) {
        const auto arguments = positional_arguments(*at_.command);
        if (at_.arguments.empty() || arguments.empty() || arguments.front()->value != "RECIPE") return;
        const auto schema = train::schema_of_recipe(at_.arguments.front(), {});
        if (!schema.ok()) return;
        for (const auto& [name, key] : schema->keys()) {
            const std::string set = lead + name + "=";
            add(set, key.help);
            if (!word_.starts_with(set)) continue;
            out_.clear();
            for (const std::string& choice : key.choices) add(set + choice, "");
            if (key.kind != base::KeyKind::boolean) return;
            for (const char* value : {"true", "false"}) add(set + value, "");
            return;
        }
    }

    Position at_;
    std::string word_;
    std::vector<std::string> out_;
};

std::vector<std::string> completions(const CommandText& program, std::span<const std::string> words) {
    if (words.empty()) return {};
    Position at{&program};
    for (const std::string& word : words.first(words.size() - 1)) advance(at, word);
    return Offers(at, words.back()).all();
}

base::Result<int> run_completion(const std::string& wanted, const std::optional<std::vector<std::string>>& words,
                                 const CommandText& program) {
    if (words) {
        for (const std::string& line : completions(program, *words)) say(line + "\n");
        return 0;
    }
    for (const auto& [shell, script] : {std::pair{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}})
        if (wanted == shell) {
            say(script);
            return 0;
        }
    return base::Error{"which shell? bash, zsh or fish"};
}

}  // namespace

void add_completion(const Command& program) {
    auto [command, shell] = program.command<std::string>("completion", "print the script that completes words in a shell",
                                                         [program](const std::string& wanted, const Context& context) {
                                                             return run_completion(wanted, context.command, program.describe());
                                                         });
    command.option("SHELL", shell, "bash, zsh or fish").one_of({"bash", "zsh", "fish"});
    command.footer(R"(Examples:
  source <(millrace completion bash)                            in ~/.bashrc
  source <(millrace completion zsh)                             in ~/.zshrc, behind compinit
  millrace completion fish > ~/.config/fish/completions/millrace.fish

An installed package has them. Behind -- stand the words of a line up to the cursor, and what fits is printed.)");
    command.takes_command();
}

}  // namespace millrace::cli
