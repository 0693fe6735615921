// metrics_doc [FILE]: the table of metrics as Markdown, into FILE or on the standard output.

#include <cstdio>
#include <string>

#include "io/file.h"
#include "metric_document.h"
#include "models/registry.h"

int main(int count, char** arguments) {
    (void)millrace::models::families();  // they bring metrics along
    const std::string text = millrace::record::metric_document();
    if (count < 2) return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
    const auto written = millrace::io::write_atomically(arguments[1], text);
    if (!written.ok()) std::fprintf(stderr, "metrics_doc: %s\n", written.error().text().c_str());
    return written.ok() ? 0 : written.error().exit_status;
}
