# Built by `make images`; the context is bin/image, with the static binaries and an empty directory.
# `standalone --data /data` is the whole system in one container.
FROM scratch
COPY brokerd /brokerd
COPY --chown=65532:65532 empty /data
USER 65532:65532
EXPOSE 6650 8080 7946/tcp 7946/udp
ENTRYPOINT ["/brokerd"]
CMD ["run"]
