/* The only program of the images that the node runs: `pause` holds a pod, `serve <port>` answers every HTTP request
 * with 200 and its own arguments and environment, one per line, so that a test can see what a container was given. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void end(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, NULL, WNOHANG) > 0) {} }

static void answer(int client, int argc, char **argv) {
  char request[4096], line[64];
  static char body[1 << 16];
  size_t length = 0;
  if (read(client, request, sizeof request) <= 0) return;
  for (int n = 1; n < argc; n++) length += snprintf(body + length, sizeof body - length, "%s\n", argv[n]);
  for (char **entry = environ; *entry && length < sizeof body / 2; entry++)
    length += snprintf(body + length, sizeof body - length, "%s\n", *entry);
  int head = snprintf(line, sizeof line, "HTTP/1.0 200 OK\r\nContent-Length: %zu\r\n\r\n", length);
  if (write(client, line, head) == head && write(client, body, length) < 0) perror("write");
}

int main(int argc, char **argv) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  if (argc < 3 || strcmp(argv[1], "serve") != 0) {
    signal(SIGCHLD, reap);
    for (;;) pause();
  }
  signal(SIGPIPE, SIG_IGN);
  int server = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
  printf("serves port %s\n", argv[2]);
  fflush(stdout);
  if (bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 16)) return perror("listen"), 1;
  for (;;) {
    int client = accept(server, NULL, NULL);
    if (client < 0) continue;
    answer(client, argc, argv);
    close(client);
  }
}
