#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/version.h"
#include "cli/commands.h"
#include "io/file.h"

namespace millrace::cli {
namespace {

/// Text as troff prints it unchanged: no line a request, every hyphen and quote the one that was typed.
std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const bool begins_line = out.empty() || out.back() == '\n';
        switch (c) {
            case '\\': out += "\\(rs"; break;
            case '-': out += "\\-"; break;
            case '\'': out += "\\(aq"; break;
            case '`': out += "\\(ga"; break;
            case '^': out += "\\(ha"; break;
            case '~': out += "\\(ti"; break;
            case '.': out += begins_line ? "\\&." : "."; break;
            default: out += c;
        }
    }
    return out;
}

std::string bold(const std::string& text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + escaped(text) + "\\fR"; }

std::string name_of(const CommandText& command) { return fmt::format("{}", fmt::join(command.words, "-")); }

std::string argument_text(const OptionText& option) {
    const std::string word = italic(option.value) + (option.repeats ? "..." : "");
    return option.is_required ? word : "[" + word + "]";
}

std::string synopsis(const CommandText& command) {
    const std::string words = bold(fmt::format("{}", fmt::join(command.words, " ")));
    std::string out = words + " [" + italic("OPTIONS") + "]";
    for (const OptionText* argument : positional_arguments(command)) out += " " + argument_text(*argument);
    if (command.takes_command) out += " [" + bold("--") + " " + italic("COMMAND") + "...]";
    if (!command.commands.empty()) out += "\n.br\n" + words + " " + italic("COMMAND") + " ...";
    return out + "\n";
}

/// "-o, --out RUN" above its meaning.
std::string option_text(const OptionText& option) {
    std::string head, facts;
    for (const std::string& name : option.names) head += (head.empty() ? "" : ", ") + bold(name);
    const bool lists_choices = !option.names.empty() && !option.choices.empty();
    const std::string value = lists_choices ? fmt::format("{}", fmt::join(option.choices, "|")) : option.value;
    if (!value.empty()) head += (head.empty() ? "" : " ") + italic(value) + (option.repeats ? " ..." : "");
    const auto add = [&](const std::string& word, const std::string& fact) {
        if (!fact.empty()) facts += (facts.empty() ? "" : ", ") + word + fact;
    };
    add("", option.is_required ? "required" : "");
    add("in ", option.limits);
    add("default: ", option.initial);
    add("environment: ", option.environment);
    return fmt::format(".TP\n{}\n{}{}\n", head, escaped(option.meaning), facts.empty() ? "" : " (" + escaped(facts) + ")");
}

/// Lines that are indented stay as they are, the others are filled.
std::string paragraph(const std::string& text) {
    std::istringstream lines(text);
    std::string out;
    bool as_typed = false;
    for (std::string line; std::getline(lines, line);) {
        const bool indented = line.starts_with("  ");
        if (indented != as_typed) out += indented ? ".RS 4\n.EX\n" : ".EE\n.RE\n";
        as_typed = indented;
        if (!line.empty()) out += escaped(indented ? line.substr(2) : line) + "\n";
    }
    return out + (as_typed ? ".EE\n.RE\n" : "");
}

/// What stands below the options in the help: paragraphs that begin with "Examples:" or "Exit status:" open sections. What comes
/// before the first of these is description.
struct Footer {
    std::string description, sections;
};

Footer footer_of(const std::string& text) {
    Footer out;
    std::string section;
    for (std::size_t from = 0; from < text.size();) {
        const std::size_t end = std::min(text.find("\n\n", from), text.size());
        std::string part = text.substr(from, end - from);
        from = end + 2;
        std::string opens = section.empty() || section == "NOTES" ? "" : "NOTES";
        for (const auto& [begin, heading] : {std::pair{"Example", "EXAMPLES"}, {"Exit status", "EXIT STATUS"}})
            if (part.starts_with(begin)) {
                opens = heading;
                part.erase(0, part.find_first_not_of(": ", std::min(part.find(':'), part.size() - 1)));
            }
        if (!opens.empty()) section = opens;
        std::string& to = section.empty() ? out.description : out.sections;
        if (!opens.empty())
            to += ".SH " + opens + "\n";
        else if (!to.empty())
            to += ".PP\n";
        to += paragraph(part);
    }
    return out;
}

/// The page in man(7), called after the command's words: millrace-data-make(1).
std::string manual_page(const CommandText& command) {
    const std::string name = name_of(command);
    const Footer footer = footer_of(command.footer);
    std::string title = name;
    std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
    // Without hyphenation and stretched lines: many words are to be typed.
    std::string out = fmt::format(".TH {} 1 \"\" \"millrace {}\"\n.nh\n.ad l\n", escaped(title), base::version());
    out += fmt::format(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}", escaped(name), escaped(command.meaning), synopsis(command));
    std::string arguments, options, commands;
    for (const OptionText& option : command.options) (option.names.empty() ? arguments : options) += option_text(option);
    for (const CommandText& each : command.commands)
        commands += fmt::format(".TP\n{}(1)\n{}\n", bold(name_of(each)), escaped(each.meaning));
    const auto section = [&](const char* heading, const std::string& text) {
        if (!text.empty()) out += fmt::format(".SH {}\n{}", heading, text);
    };
    section("DESCRIPTION", footer.description);
    section("COMMANDS", commands);
    section("ARGUMENTS", arguments);
    section("OPTIONS", options);
    return out + footer.sections;
}

struct ManArguments {
    std::vector<std::string> words;
    std::string out;
};

base::Result<int> write_pages(const CommandText& command, const io::Path& folder) {
    MILLRACE_TRY(io::write_atomically(folder / (name_of(command) + ".1"), manual_page(command)));
    for (const CommandText& each : command.commands) MILLRACE_TRY(write_pages(each, folder));
    return 0;
}

base::Result<int> run_man(const ManArguments& given, const CommandText& program) {
    if (!given.out.empty()) {
        std::error_code failed;
        std::filesystem::create_directories(given.out, failed);  // a failed one is reported by the first page
        return write_pages(program, given.out);
    }
    const CommandText* command = &program;
    for (const std::string& word : given.words) {
        const auto at = std::ranges::find(command->commands, word, [](const CommandText& each) { return each.words.back(); });
        if (at == command->commands.end()) return base::Error{fmt::format("no command '{}'; millrace --help lists them", word)};
        command = &*at;
    }
    say(manual_page(*command));
    return 0;
}

}  // namespace

void add_man(const Command& program) {
    auto [command, given] =
        program.command<ManArguments>("man", "print the manual page of a command",
                                      [program](const ManArguments& chosen) { return run_man(chosen, program.describe()); });
    command.option("COMMAND", given.words, "such as train or data make; none: the page of the program");
    command.option("--out DIR", given.out, "write the pages of all commands into this folder instead");
    command.footer(R"(Examples:
  millrace man train | man -l -
  millrace man --out ~/.local/share/man/man1

An installed package has them: man millrace-train.)");
}

}  // namespace millrace::cli
