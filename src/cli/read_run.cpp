#include "cli/read_run.h"

#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "diagnose/reading/timeline_reader.h"
#include "report/terminal.h"

namespace millrace::cli {

base::Result<diagnose::Timeline> read_run_with_progress(const std::string& path) {
    report::ProgressLine line("reading " + path);
    return diagnose::read_timeline(path, [&line](double share) { line.show(share); });
}

report::TextOptions text_options() {
    report::TextOptions options;
    const char* term = std::getenv("TERM");
    const bool terminal = isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
    options.colour = base::colour_wanted(terminal, std::getenv("NO_COLOR"));
    options.utf8 = report::utf8_locale(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG"));
    return options;
}

}  // namespace millrace::cli
